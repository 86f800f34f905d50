"""What is told of steps: where their time goes, and what the ledger of gradients compares of them."""
