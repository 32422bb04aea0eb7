"""The configuration that both backends share: the schema, the built-in cases, the weights of each model."""
