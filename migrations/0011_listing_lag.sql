-- Lists reach 20 seconds back, no longer a minute: what was listed further behind its activity would be missing from them.
update ai_conversation set listed_ts = last_activity_ts
where listed_ts < last_activity_ts - interval '20 seconds';
