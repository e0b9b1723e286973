"""What the host, the database, the service and the spreading of work cost."""
