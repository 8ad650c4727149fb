-- What one tenant's roots are, however many others have promoted; and which devices are watched for idleness, however many are not.
CREATE INDEX snapshots_roots_of_tenant ON snapshots (tenant, rooted_at) WHERE rooted_at IS NOT NULL;
CREATE INDEX emulators_watched ON emulators (id)
    WHERE idle_timeout_seconds IS NOT NULL AND wanted = 'running' AND status = 'running';
