PRAGMA secure_delete = OFF
