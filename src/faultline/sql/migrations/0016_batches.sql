-- The transaction of a batch handler (batches.sql). Null for the transaction of one job.
ALTER TABLE faultline.open_transactions ADD COLUMN batch_id uuid;
