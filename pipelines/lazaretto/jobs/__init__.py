"""Jobs: read what was configured, build it, run it; and the local session and broker they run on."""
