SELECT partition FROM {g}.pause
