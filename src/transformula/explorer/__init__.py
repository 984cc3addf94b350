"""The explorer: a local web page that compiles, draws and compares. It listens on this machine only."""
