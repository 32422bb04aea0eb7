"""The Keras half of a user's own pair of models: built, surveyed, and recorded in torch's canonical form."""
