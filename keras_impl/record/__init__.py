"""The recorder: runs a case or half of a pair, and records it; models, strategies and losses do not know of it."""
