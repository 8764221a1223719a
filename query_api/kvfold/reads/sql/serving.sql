SELECT serving FROM kvfold.pointer
