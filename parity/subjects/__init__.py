"""What is run and compared, a built-in case or a pair of a user's models: the commands need not ask which it is."""
