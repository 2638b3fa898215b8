"""What-if: fork a run, edit an event, and run on from there."""
