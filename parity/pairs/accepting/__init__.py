"""The differences that a pair's file accepts: what follows from them, what is left, and what it could accept."""
