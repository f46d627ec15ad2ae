-- The roles of docker-compose.yml. The PostgreSQL image runs this file once, as its superuser,
-- when it creates the database. The psql commands below read the passwords from the environment,
-- so that no file contains them.

\getenv owner_password POSTGRES_OWNER_PASSWORD
\getenv login_password POSTGRES_LOGIN_PASSWORD

-- The role of sessions of servers and workers. It owns nothing; row-level security applies to it.
create role anneal_app nologin;
-- Owns the database and its tables. Only `anneal migrate`, `anneal keys` and `anneal tenants` need
-- it.
create role anneal_owner login password :'owner_password' in role anneal_app;
-- The login of servers and workers. It may connect and become anneal_app, and has no other rights.
create role anneal_login login password :'login_password' in role anneal_app;

alter database :"DBNAME" owner to anneal_owner;
revoke all on database :"DBNAME" from public;
-- Sessions are anneal_app, and may read the size of a database that they may connect to.
grant connect on database :"DBNAME" to anneal_login, anneal_app;
