-- Drops the older tables and the views on them.
drop view legacy_content, legacy_message, legacy_conversation;
drop function pg_temp.legacy_labels, pg_temp.legacy_us;
drop table if exists legacy_ai_conversation_checkpoint, legacy_ai_message, legacy_ai_conversation
