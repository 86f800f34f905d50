"""What ``ddpdoctor lint`` shows while it looks, and afterwards."""
