"""How kvfold is assembled and run: the commands, the embedded server, the benches."""
