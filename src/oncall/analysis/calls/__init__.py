"""One rank's calls by themselves: what each is for, where iterations begin, their patterns."""
