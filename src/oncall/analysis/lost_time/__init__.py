"""Lost time: how much shorter iterations get when one cause is removed."""
