"""Where announcements go: chats and pagers by apprise, CloudEvents, Alertmanager."""
