"""What both builders give to tensors that nothing trains: tables and constants; which are random, and which differ."""
