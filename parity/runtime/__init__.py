"""The processes of the backends: their environment, the jobs that they are given, their answers, and their end."""
