"""The OpenAI Batch API's work: files of requests, run when people leave room."""
