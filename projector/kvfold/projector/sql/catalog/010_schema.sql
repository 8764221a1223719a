-- Outside the generations: which of them serves, and which log they are folded from.
CREATE SCHEMA IF NOT EXISTS kvfold;
