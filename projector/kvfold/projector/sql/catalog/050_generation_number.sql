-- The number of the next generation; the first one is 1. A number is never given twice, so that nothing that somebody
-- remembers of a generation is ever taken for another one's.
CREATE SEQUENCE IF NOT EXISTS kvfold.generation_number START 2;
