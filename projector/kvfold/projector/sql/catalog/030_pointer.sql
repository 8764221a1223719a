-- The one row that says which generation serves. Every read selects it along with its data.
CREATE TABLE IF NOT EXISTS kvfold.pointer (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    serving int NOT NULL
);
