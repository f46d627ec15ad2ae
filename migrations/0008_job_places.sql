-- A job dies under its own lock alone: a foreign key would take the conversation's after it, against the order of locks.

alter table ai_job_dead drop constraint ai_job_dead_conversation_id_fkey;

-- claim_jobs reads the index priority by priority.
alter table ai_job add constraint ai_job_priority_known check (priority in (-1, 0));

-- Its only reader, delete_conversation, names the kinds, and so goes by the primary key: every append, claim and end of a job
-- writes one index less.
drop index ai_job_by_conversation;
