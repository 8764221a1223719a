SELECT p.serving, n.schema_version FROM kvfold.pointer p JOIN kvfold.generation n ON n.id = p.serving
