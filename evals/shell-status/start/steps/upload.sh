echo uploading
