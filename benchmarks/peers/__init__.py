"""The peers that ours is compared with: torch and CLBlast."""
