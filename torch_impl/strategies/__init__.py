"""How a model is trained and spread over devices: one short file per strategy."""
