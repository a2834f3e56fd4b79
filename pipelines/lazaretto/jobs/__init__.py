"""Where everything is put together: sessions, the local broker, and one `main(argv)` per job."""
