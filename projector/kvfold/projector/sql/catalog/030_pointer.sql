-- The one row that says which generation serves. Every read selects it along with its data.
CREATE TABLE IF NOT EXISTS kvfold.pointer (
    only boolean PRIMARY KEY DEFAULT true CHECK (only),
    serving int NOT NULL
);
