-- How long the past of a family is kept, in milliseconds of effective time; a family that has no row is kept for ever.
-- Outside the generations, so that a rebuilt one trims as the old one did.
CREATE TABLE IF NOT EXISTS kvfold.retention (
    family text PRIMARY KEY CHECK (family IN ('orchestration', 'capsule', 'deployment')),
    keep_ms bigint NOT NULL CHECK (keep_ms >= 0)
);
