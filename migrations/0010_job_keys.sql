-- A job is found by its conversation first: whoever knows only the kind cannot use the key, and no plan made for an empty queue
-- reads all jobs of a kind to find those of some conversations.

alter table ai_job drop constraint ai_job_pkey, add primary key (conversation_id, kind);

alter table ai_job_dead drop constraint ai_job_dead_pkey, add primary key (conversation_id, kind);

-- The key begins with it now.
drop index ai_job_dead_by_conversation;
