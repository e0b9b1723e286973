"""What ours is compared with: torch and CLBlast."""
