"""The backends' processes: their environment, the jobs they are fed, what they answer, their end."""
