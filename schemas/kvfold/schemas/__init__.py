"""The contract: data and pure functions over it. Nothing here does I/O, reads a clock or draws a random number."""
