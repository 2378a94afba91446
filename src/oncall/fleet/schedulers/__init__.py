"""Schedulers: which nodes a job has, and how to run a command on them where ssh is forbidden."""
