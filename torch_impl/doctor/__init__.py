"""The doctor on this side: runs a program, and observes what it does while it is built and in a step."""
