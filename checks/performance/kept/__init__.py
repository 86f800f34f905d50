"""What is made, registered or left on, and makes each step dearer."""
