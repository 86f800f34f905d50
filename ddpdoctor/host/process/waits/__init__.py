"""What a process that rests waits for, by the system call that it is inside of."""
