"""What people read: plans, runs, machines and explanations as rich renderables, from values alone."""
