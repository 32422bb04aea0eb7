"""Device layouts: their canonical form, what differs by design, and their comparison."""
