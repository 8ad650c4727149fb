-- Disk images from outside. The folder that a layer's source must be found below; none: the source is the server's own.
ALTER TABLE layers ADD COLUMN folder TEXT;
-- The digest that a layer must have once its bytes are there.
ALTER TABLE layers ADD COLUMN expected TEXT;
-- Those that wait for somebody to send their bytes, the oldest first.
CREATE INDEX layers_uploading ON layers (created_at) WHERE state = 'uploading';
