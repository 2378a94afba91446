"""What an engineer saves from a host as text: kernel logs, and what its tools print."""
