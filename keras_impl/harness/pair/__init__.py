"""A user's own Keras model: built, surveyed, recorded in the canonical form of its torch counterpart."""
