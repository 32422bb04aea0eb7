"""The strategies: how a model is trained and distributed over devices, in one short file each."""
