"""What a training row is: row number → pieces of documents, planned once or in closed form."""
